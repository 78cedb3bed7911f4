"""What users ask: texts, who asks for them where and when, and how much prefix the requests share."""
